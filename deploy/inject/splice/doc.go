// Package splice changes the text of YAML documents by what their values are to
// be, and marks what it changed, so that it can be undone.
//
//	# csi-fencepost: begin
//	# csi-fencepost: was|        - --timeout=15s
//	        - --timeout=60s
//	# csi-fencepost: end
//
// It guarantees that every line outside of such a hunk stays as it is, byte for
// byte, that the new text holds exactly the values that were asked for, and that
// Undo gives the old text back: Apply checks all three before it returns, and
// returns an error for text that it cannot change so. Positions come from a YAML
// parser; no text is printed anew but what is inserted. That is why no YAML library's
// printer does this: each has its own layout, and loses a line break or a comment's place.
//
// It does not keep anchors apart: a value that is used in several places, of
// which one is to change, is an error.
package splice
