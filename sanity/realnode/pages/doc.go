// Package pages is a small database of checksummed pages, as a pod of a real node
// writes it, and the check of what is left of it.
//
//	pages.db         a page each 4 KiB: its number, its version, who wrote it, a body
//	                 that follows from these, a checksum
//	log-FROM-WRITER/0000000042
//	                 commits of 64 bytes: this page has this version now
//
// A commit is: write the page, fsync, write the commit, fsync. Who opens it begins a
// timeline, a folder of its own; every twenty commits begin a new file there, and the
// oldest of all is deleted: so a file system that two machines have mounted is not only
// written but changed by both.
//
// Each version is given once: it counts the commits of the whole database. So a page
// that is older than its last commit is a lost write, and a version that two writers
// have given is two histories. No machine alone, killed at any moment, leaves either;
// two machines at once leave both.
package pages
