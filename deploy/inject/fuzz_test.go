package inject

import (
	"bytes"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func mustFlow(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Whatever the text: no panic, and what was put in can be taken out again.
func FuzzInject(f *testing.F) {
	for _, folder := range []string{"cases", "refused"} {
		for name, in := range inputs(f, folder) {
			f.Add(in.Text, strings.Join(options[name].Drivers, " "))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, driver string) {
		if clean, err := Uninject([]File{{"f.yaml", text}}); err != nil || len(clean.Files) != 1 || !bytes.Equal(clean.Files[0].Text, text) {
			return // marks, or an annotation, of an injection before
		}
		r, err := Inject([]File{{"f.yaml", text}}, Options{Drivers: strings.Fields(driver), Namespace: "storage"})
		if err != nil {
			return
		}
		restored(t, r.Files, text)
	})
}

func restored(t *testing.T, injected []File, text []byte) {
	t.Helper()
	back, err := Uninject(injected)
	if err != nil {
		t.Fatalf("%v in\n%s", err, injected[0].Text)
	}
	if len(back.Files) != 1 || !bytes.Equal(back.Files[0].Text, text) {
		t.Fatalf("came back as\n%q\nfrom\n%s", back.Files, injected[0].Text)
	}
}

// The same over damaged fixtures, on every run: lines that are lost, doubled,
// indented, joined or end otherwise.
func TestDamagedManifestsAreRefusedOrRestored(t *testing.T) {
	random, tried, worked := rand.New(rand.NewPCG(1, 2)), 0, 0
	all := inputs(t, "cases")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for range 20 {
			text := damage(random, all[name].Text)
			tried++
			r, err := Inject([]File{{name, text}}, options[name])
			if err != nil {
				continue
			}
			worked++
			restored(t, r.Files, text)
		}
	}
	if worked < tried/4 {
		t.Errorf("of %d only %d could be injected: the damage is too large to test anything", tried, worked)
	}
}

func damage(random *rand.Rand, text []byte) []byte {
	lines := bytes.SplitAfter(text, []byte("\n"))
	i := random.IntN(len(lines))
	switch random.IntN(8) {
	case 0:
		lines = slices.Delete(lines, i, i+1)
	case 1:
		lines = slices.Insert(lines, i, lines[i])
	case 2:
		lines[i] = append([]byte("  "), lines[i]...)
	case 3:
		lines[i] = bytes.TrimRight(lines[i], "\r\n")
	case 4:
		lines[i] = append(bytes.TrimRight(lines[i], "\r\n"), "   # ü\u2028\r\n"...)
	case 5:
		lines = slices.Insert(lines, i, []byte("\n"), []byte("   \n"))
	case 6:
		return append([]byte("\ufeff"), text...)
	case 7:
		return bytes.TrimRight(text, "\r\n")
	}
	return bytes.Join(lines, nil)
}
