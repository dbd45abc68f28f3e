// Package lint holds the rules of the tree that a compiler doesn't know, as tests.
package lint

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/go/packages"
)

const module = "github.com/kvonce/kvonce/"

// arrows says what a package may import of ours; "*" is anything. A package that isn't named here fails the test,
// so that a new room gets its arrows when it is made.
var arrows = map[string][]string{
	"registry":                          {"internal/canon", "internal/cow"},
	"fsm":                               {"registry", "internal/canon", "internal/cow"},
	"internal/canon":                    {},
	"internal/cow":                      {},
	"transport":                         {"transport/kvoncev1"},
	"transport/kvoncev1":                {},
	"client":                            {"transport/kvoncev1"},
	"internal/raftguard":                {},
	"internal/durable":                  {},
	"internal/node":                     {"internal/durable", "registry", "fsm", "transport", "transport/kvoncev1", "internal/raftguard"},
	"internal/httpapi":                  {"internal/node"},
	"internal/localcluster":             {"internal/durable", "client", "transport/kvoncev1"},
	"internal/lint":                     {},
	"internal/localcluster/clustertest": {"internal/localcluster"},
	"jepsen":                            {"client", "transport/kvoncev1", "internal/localcluster"},
	"bench":                             {"client", "internal/localcluster"},
	"docs/picture":                      {"client", "internal/localcluster"},
	"cmd/kvnode":                        {"*"},
	"cmd/kvclient":                      {"*"},
}

// pure lists the packages whose results may depend on their arguments alone.
var pure = []string{"registry", "fsm", "internal/canon", "internal/cow"}

// impure lists what a pure package must not import directly.
var impure = []string{"time", "math/rand", "math/rand/v2", "crypto/rand", "os", "net", "sync", "sync/atomic", "context", "log", "log/slog"}

func load(t *testing.T, tests bool) []*packages.Package {
	t.Helper()
	mode := packages.NeedName | packages.NeedImports | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedFiles
	pkgs, err := packages.Load(&packages.Config{Mode: mode, Dir: "../..", Tests: tests}, "./...")
	require.NoError(t, err)
	require.Greater(t, len(pkgs), 8, "the tree has more packages than that")
	for _, p := range pkgs {
		require.Empty(t, p.Errors, p.PkgPath)
	}
	return pkgs
}

func TestImportArrows(t *testing.T) {
	for _, p := range load(t, false) {
		name := strings.TrimPrefix(p.PkgPath, module)
		allowed, known := arrows[name]
		if !known {
			t.Errorf("package %s has no arrows: add it to the table", name)
			continue
		}
		for path := range p.Imports {
			target, ours := strings.CutPrefix(path, module)
			if ours && !slices.Contains(allowed, target) && !slices.Contains(allowed, "*") {
				t.Errorf("%s imports %s; it may import %v", name, target, allowed)
			}
		}
	}
}

func TestPureCore(t *testing.T) {
	seen := 0
	for _, p := range load(t, false) {
		if !slices.Contains(pure, strings.TrimPrefix(p.PkgPath, module)) {
			continue
		}
		seen++
		for path := range p.Imports {
			if slices.Contains(impure, path) {
				t.Errorf("%s imports %s", p.PkgPath, path)
			}
		}
		for _, f := range p.Syntax {
			ast.Inspect(f, func(n ast.Node) bool {
				if what := impurity(p.TypesInfo, n); what != "" {
					t.Errorf("%s: %s", p.Fset.Position(n.Pos()), what)
				}
				return true
			})
		}
	}
	require.Equal(t, len(pure), seen)
}

// impurity says what makes a syntax node impure, if anything.
func impurity(info *types.Info, n ast.Node) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		return "go statement"
	case *ast.ChanType, *ast.SendStmt, *ast.SelectStmt:
		return "channel"
	case *ast.RangeStmt:
		if _, ok := info.TypeOf(n.X).Underlying().(*types.Map); ok {
			return "range over a map"
		}
	}
	return ""
}
