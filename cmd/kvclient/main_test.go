package main

import (
	"os"
	"testing"

	"github.com/kvonce/kvonce/internal/localcluster/clustertest"
)

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m)) }
