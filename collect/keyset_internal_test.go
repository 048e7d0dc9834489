package collect

import (
	"fmt"
	"strconv"
	"testing"
)

func TestAKeySetMissesNoKeyAndRarelyTakesOneForAnother(t *testing.T) {
	for _, n := range []int{0, 1, firstLayer, firstLayer + 1, 5*firstLayer + 1, 200_000} {
		s := &keySet{}
		for i := range n {
			s.add(fmt.Sprintf("record-%08d", i))
		}
		bytes := 0
		for _, l := range s.layers {
			bytes += 8 * len(l.bits)
		}
		if most := 4*firstLayer + 16*n; bytes > most {
			t.Errorf("%d keys take %d bytes, want at most %d", n, bytes, most)
		}
		wrong := 0
		for i := range n {
			if !s.has(fmt.Sprintf("record-%08d", i)) {
				t.Fatalf("%d keys: key %d was missed", n, i)
			}
			if s.has(fmt.Sprintf("other-%08d", i)) {
				wrong++
			}
		}
		// About one in 180,000 a layer, with eight probes into 32 bits a key.
		if wrong > 5+n/20_000 {
			t.Errorf("%d keys: %d of as many others were taken for one", n, wrong)
		}
	}
}

func TestAFullKeySetStaysSmall(t *testing.T) {
	s := &keySet{}
	for n := range 1_500_000 {
		s.add(strconv.Itoa(n))
	}
	bytes := 0
	for _, l := range s.layers {
		bytes += 8 * len(l.bits)
	}
	if len(s.layers) != maxLayers || bytes > 6<<20 {
		t.Errorf("%d layers of %d bytes", len(s.layers), bytes)
	}
	if !s.has("0") || !s.has("1400000") {
		t.Error("a key was missed")
	}
}
