package main

import _ "github.com/CycloneDX/cyclonedx-go" // its folder of schemas
