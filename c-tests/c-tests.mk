# C and C++ test programs: `make c-tests` fills target/c-tests/.
