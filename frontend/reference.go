package frontend

import "music/musiccore"

// MaxRef is the highest reference that can be given: shown to a client it is below the bits of every double from 1 on (wholeNumber).
const MaxRef musiccore.LockRef = 1<<39 - 1
