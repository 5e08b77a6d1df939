// Package tempdir makes the temporary folders of the rigs. Each is named
// fencepost-*, and its owner holds a lock in it: what a killed owner left is
// removed when the next folder is made, by whatever rig, and by make clean-cache.
package tempdir
