// aws-sdk-go-v2, with its own checks of digests: "life" leads messages through theirs, "send" sends a single one.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

var (
	ctx  = context.Background()
	text = aws.String
)

func must[T any](result T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return result
}

func check(holds bool, what string, seen ...any) {
	if !holds {
		log.Fatal(what, ": ", fmt.Sprint(seen...))
	}
}

func refused[E error](err error) {
	var wanted E
	check(errors.As(err, &wanted), fmt.Sprintf("not a %T", wanted), err)
}

func main() {
	log.SetFlags(0)
	what, endpoint, region, name := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	client := sqs.New(sqs.Options{
		BaseEndpoint: &endpoint,
		Region:       region,
		Credentials:  credentials.NewStaticCredentialsProvider("any", "any", ""),
	})
	if what == "send" {
		sent := must(client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: &name, MessageBody: text("once")}))
		fmt.Println(*sent.MessageId)
		return
	}
	life(client, name)
	fifo(client, name)
}

func life(client *sqs.Client, name string) {
	made := must(client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name, Tags: map[string]string{"made": "by go"}}))
	url := made.QueueUrl
	blob := []byte{0, 1, 254, 255}
	attributes := map[string]types.MessageAttributeValue{
		"text":   {DataType: text("String"), StringValue: text("grüße")},
		"number": {DataType: text("Number.int"), StringValue: text("12.50")},
		"blob":   {DataType: text("Binary"), BinaryValue: blob},
	}
	body := "hello \U0001f375"
	sent := must(client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: url, MessageBody: &body, MessageAttributes: attributes}))
	everything := &sqs.ReceiveMessageInput{
		QueueUrl:                    url,
		MessageAttributeNames:       []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
	}
	received := must(client.ReceiveMessage(ctx, everything)).Messages
	check(len(received) == 1 && *received[0].Body == body && *received[0].MessageId == *sent.MessageId, "received", received)
	check(bytes.Equal(received[0].MessageAttributes["blob"].BinaryValue, blob), "blob", received[0].MessageAttributes)
	check(received[0].Attributes["ApproximateReceiveCount"] == "1", "attributes", received[0].Attributes)
	handle := received[0].ReceiptHandle
	must(client.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{QueueUrl: url, ReceiptHandle: handle, VisibilityTimeout: 60}))
	must(client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: handle}))

	poll := make(chan *sqs.ReceiveMessageOutput)
	go func() {
		poll <- must(client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: url, WaitTimeSeconds: 20}))
	}()
	batch := must(client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: url, Entries: []types.SendMessageBatchRequestEntry{
		{Id: text("good"), MessageBody: text("good"), MessageAttributes: attributes},
		{Id: text("bad"), MessageBody: text("bad"), DelaySeconds: 901},
	}}))
	check(len(batch.Successful) == 1 && len(batch.Failed) == 1 && batch.Failed[0].SenderFault, "batch", batch.Failed)
	check(len((<-poll).Messages) == 1, "a poll that waited got nothing")

	_, err := client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: text("absent")})
	refused[*types.QueueDoesNotExist](err)
	_, err = client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: text("nonsense")})
	refused[*types.ReceiptHandleIsInvalid](err)
	_, err = client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: url, Entries: []types.SendMessageBatchRequestEntry{}})
	refused[*types.EmptyBatchRequest](err)
	tags := must(client.ListQueueTags(ctx, &sqs.ListQueueTagsInput{QueueUrl: url})).Tags
	check(len(tags) == 1 && tags["made"] == "by go", "tags", tags)
}

func fifo(client *sqs.Client, name string) {
	name += ".fifo"
	url := must(client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name, Attributes: map[string]string{"FifoQueue": "true"}})).QueueUrl
	once := &sqs.SendMessageInput{QueueUrl: url, MessageBody: text("x"), MessageGroupId: text("g"), MessageDeduplicationId: text("d")}
	first, second := must(client.SendMessage(ctx, once)), must(client.SendMessage(ctx, once))
	check(*first.SequenceNumber == *second.SequenceNumber, "sent twice", *first.SequenceNumber, *second.SequenceNumber)
}
