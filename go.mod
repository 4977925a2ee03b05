module github.com/headgate/headgate

go 1.26
