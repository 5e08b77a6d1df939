package ipmi

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A credential is read at each use: one that never ends would take all memory.
func TestCredentialsAreReadUpToABound(t *testing.T) {
	large := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(large, []byte(strings.Repeat("hunter2", 1<<20)), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, says := range map[string]string{"/dev/zero": "is no regular file", large: "is larger than 4096 bytes"} {
		if line, err := readLine(path, "password", maxPassword); err == nil || line != "" || !strings.Contains(err.Error(), path+" "+says) {
			t.Errorf("%s: %q, %v", path, line, err)
		}
	}
}
