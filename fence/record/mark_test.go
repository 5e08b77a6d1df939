package record_test

import (
	"testing"

	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/fence/record/leasetest"
)

func TestAMarkTellsThatSomebodyHadTheLock(t *testing.T) {
	lockTest(t, func(t *testing.T, _ *leasetest.Server, s *record.Store) {
		mark := func() record.Mark {
			_, m, err := s.GetMarked(t.Context(), "n1")
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		none := mark()
		if _, err := s.Update(t.Context(), "n1", func(r *record.Record) (bool, error) { r.Note("a", "b", "c"); return true, nil }); err != nil || mark() != none {
			t.Errorf("a write is no lock: %+v, %v", mark(), err)
		}
		for range 2 {
			before := mark()
			l := lock(t, s, "a")
			held := mark()
			if held == before || held.Holder == "" {
				t.Errorf("%+v after %+v", held, before)
			}
			if err := l.Held(t.Context()); err != nil || mark() != held {
				t.Errorf("a renewal is no other lock: %+v, %v", mark(), err)
			}
			release(t, l)
			if now := mark(); now == held || now == before || now.Holder != "" {
				t.Errorf("%+v after %+v", now, held)
			}
		}
		before := mark()
		if _, err := s.UpdateMarked(t.Context(), "n1", func(_ *record.Record, m record.Mark) (bool, error) {
			if m != before {
				t.Errorf("%+v, want %+v", m, before)
			}
			return false, nil
		}); err != nil {
			t.Fatal(err)
		}
	})
}
