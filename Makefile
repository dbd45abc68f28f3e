# The commands of the README, for people who like make.
.PHONY: test lint generate run

test:
	go test ./...

lint:
	gofmt -l . | grep . && exit 1 || true
	go vet ./...
	go tool staticcheck ./...

generate:
	go generate ./...

run:
	go run ./cmd/kvnode local
