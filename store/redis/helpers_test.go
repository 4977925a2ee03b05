package redis_test

import "time"

// patient is a timeout that a busy machine meets.
const patient = 10 * time.Second
