module towline.dev/e2e

go 1.26.8

require github.com/Azure/go-amqp v1.7.0 // indirect
