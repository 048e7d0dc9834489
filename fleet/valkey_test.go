//go:build unix

package fleet_test

import (
	"testing"

	"github.com/headway-go/headway/fleet"
	"github.com/headway-go/headway/internal/fleettest"
)

// inValkey is a fleet that meets in a Valkey.
type inValkey struct {
	t *testing.T
	*fleettest.Valkey
}

func (b inValkey) Fleet(wait bool) *fleet.Fleet {
	address := "valkey://" + b.Address
	if wait {
		address += "?away=wait"
	}
	f, err := fleet.Open(b.t.Context(), address)
	if err != nil {
		b.t.Fatal(err)
	}
	return f
}

func TestContractOnValkey(t *testing.T) {
	t.Parallel()
	fleettest.Check(t, inValkey{t, fleettest.NewValkey(t)})
}
