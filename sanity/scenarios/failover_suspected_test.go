package scenarios

// suspected: a node is silent, and the agents have to find out, or to make sure.
var suspected = []scenario{}
