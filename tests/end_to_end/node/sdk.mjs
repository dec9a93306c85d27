// @aws-sdk/client-sqs, with its own checks of digests: a message's whole life, a batch, FIFO, a long poll, an error.
import assert from "node:assert/strict";
import * as aws from "@aws-sdk/client-sqs";

const [endpoint, region, name] = process.argv.slice(2);
const sqs = new aws.SQSClient({ endpoint, region, credentials: { accessKeyId: "any", secretAccessKey: "any" } });
const ask = (Command, input) => sqs.send(new aws[`${Command}Command`](input));

const { QueueUrl } = await ask("CreateQueue", { QueueName: name, tags: { made: "by node" } });
const blob = Uint8Array.from({ length: 256 }, (_, index) => index);
const MessageAttributes = {
  blob: { DataType: "Binary", BinaryValue: blob },
  text: { DataType: "String", StringValue: "grüße" },
};
const sent = await ask("SendMessage", { QueueUrl, MessageBody: "hello \u{1f375}", MessageAttributes });
const { Messages: [message] } = await ask("ReceiveMessage", { QueueUrl, MessageAttributeNames: ["All"] });
assert.equal(message.MessageId, sent.MessageId);
assert.equal(message.Body, "hello \u{1f375}");
assert.deepEqual(Uint8Array.from(message.MessageAttributes.blob.BinaryValue), blob);
const { ReceiptHandle } = message;
await ask("ChangeMessageVisibility", { QueueUrl, ReceiptHandle, VisibilityTimeout: 60 });
await ask("DeleteMessage", { QueueUrl, ReceiptHandle });

const poll = ask("ReceiveMessage", { QueueUrl, WaitTimeSeconds: 20 });
const Entries = Array.from({ length: 10 }, (_, index) => ({ Id: `${index}`, MessageBody: `body-${index}` }));
assert.equal((await ask("SendMessageBatch", { QueueUrl, Entries })).Successful.length, 10);
const received = (await poll).Messages;
while (received.length < 10) {
  received.push(...(await ask("ReceiveMessage", { QueueUrl, MaxNumberOfMessages: 10, WaitTimeSeconds: 20 })).Messages);
}
const done = received.map((each, index) => ({ Id: `${index}`, ReceiptHandle: each.ReceiptHandle }));
assert.equal((await ask("DeleteMessageBatch", { QueueUrl, Entries: done })).Successful.length, 10);

const fifo = await ask("CreateQueue", { QueueName: `${name}.fifo`, Attributes: { FifoQueue: "true" } });
const once = { QueueUrl: fifo.QueueUrl, MessageBody: "x", MessageGroupId: "g", MessageDeduplicationId: "d" };
const [first, second] = [await ask("SendMessage", once), await ask("SendMessage", once)];
assert.equal(first.SequenceNumber, second.SequenceNumber);

await assert.rejects(ask("GetQueueUrl", { QueueName: "absent" }), (error) => {
  assert.ok(error instanceof aws.QueueDoesNotExist);
  assert.equal(error.$metadata.httpStatusCode, 400);
  return true;
});
assert.deepEqual((await ask("ListQueueTags", { QueueUrl })).Tags, { made: "by node" });
sqs.destroy();
