package bed

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/csi-fencepost/csi-fencepost/sanity/tempdir"
)

// Runner is a *testing.M.
type Runner interface{ Run() int }

// RunBare runs the tests of a package below sanity/ on one API server that they
// share, and returns the exit code. race builds csi-fencepost with the race
// detector.
func RunBare(m Runner, race bool, share func(*Bed)) int {
	code, err := runBare(m, race, share)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func runBare(m Runner, race bool, share func(*Bed)) (code int, err error) {
	if err := noteSources(); err != nil {
		return 1, err
	}
	scratch, err := tempdir.New()
	if err != nil {
		return 1, err
	}
	defer scratch.Remove(false)
	programs, err := Build(context.Background(), os.Stderr, scratch.Path, race)
	if err != nil {
		return 1, err
	}
	b, err := StartBare(context.Background(), programs, func() bool { return code != 0 })
	if err != nil {
		return 1, err
	}
	share(b)
	code = m.Run()
	return code, b.Stop()
}

// noteSources looks at the sources of csi-fencepost, which no test imports: else
// `go test` would not know that a cached result is outdated.
func noteSources() error {
	for _, folder := range []string{"cmd", "csi", "fence", "proxy"} {
		err := filepath.WalkDir(filepath.Join("..", "..", folder), func(path string, d fs.DirEntry, err error) error {
			if err == nil && filepath.Ext(path) == ".go" {
				_, err = os.Stat(path)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
