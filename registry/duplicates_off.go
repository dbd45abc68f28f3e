//go:build broken_noduplicatecheck

package registry

// checkDuplicates is off in this build: a repeated request runs again. It exists to show that the tests of
// guarantee G1 and the drill notice.
const checkDuplicates = false
