package scenarios

// cutClients: many nodes at once, several drivers, and fences at the storage.
var cutClients = []scenario{}
