package profile

import "slices"

// profiles of the drivers. A fact that was not read in its source stays out:
// unknown is the safe answer.
var profiles = slices.Concat(clouds, machines, clustered, arrays, unguarded)
