package redis_test

import "time"

// patient is a timeout that even a busy machine meets.
const patient = 10 * time.Second
