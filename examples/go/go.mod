module iris

go 1.21
