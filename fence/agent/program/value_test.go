package program

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A parameter's file is read at each use: one that never ends would take all memory.
func TestAParameterIsReadUpToABound(t *testing.T) {
	large := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(large, []byte(strings.Repeat("hunter2", 1<<20)), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, says := range map[string]string{"/dev/zero": "is no regular file", large: "is larger than 65536 bytes"} {
		if value, err := readValue("token", path); err == nil || value != "" || !strings.Contains(err.Error(), path+" "+says) {
			t.Errorf("%s: %.20q, %v", path, value, err)
		}
	}
}
