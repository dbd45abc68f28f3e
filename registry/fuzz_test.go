package registry

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvonce/kvonce/internal/cow"
)

// FuzzLoad: no record makes Load panic, and one that is accepted is written with the same bytes again and leaves a
// registry in which everything fits.
func FuzzLoad(f *testing.F) {
	f.Add(byte(KindClient), sampleClient().Append(nil))
	f.Add(byte(KindAnswer), sampleAnswer().Append(nil))
	f.Add(byte(KindTombstone), sampleTombstone().Append(nil))
	other := sampleClient()
	other.ID, other.Verifier, other.Ordered = 77, verifierOf("c"), false
	f.Add(byte(KindClient), other.Append(nil))
	f.Fuzz(func(t *testing.T, kind byte, record []byte) {
		r := loaded(t)
		if r.Load(kind, record) != nil {
			return
		}
		found := false
		r.Records(func(k byte, rec cow.Record) bool {
			found = found || k == kind && string(rec.Append(nil)) == string(record)
			return true
		})
		require.True(t, found, "a record that was loaded isn't written as it was")
		checkInvariants(t, r)
		require.Equal(t, r.Digest(), reload(t, r).Digest())
	})
}
