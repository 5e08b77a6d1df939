// Package guards takes the guards out of csi-fencepost, one at a time: each
// STORY.patch removes what the scenario STORY stands for, and the scenario has to
// fail then. A second guard of one story is STORY.what.patch.
//
//	sanity/scenarios/guards/play.sh STORY   plays it, and says what came of it
//
// Ahead of its diff a patch says which guard it takes out (Guard:) and what the
// story's log has to match then (Expect:, an extended regular expression). What
// came of each is in docs/GUARDS.md.
package guards
