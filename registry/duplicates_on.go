//go:build !broken_noduplicatecheck

package registry

// checkDuplicates is off only in builds that test the tests.
const checkDuplicates = true
