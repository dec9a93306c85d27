// sqs-consumer: every message is handled, and one whose handler fails is handled again.
import assert from "node:assert/strict";
import { SQSClient, CreateQueueCommand, GetQueueAttributesCommand, SendMessageCommand } from "@aws-sdk/client-sqs";
import { Consumer } from "sqs-consumer";

const [endpoint, region, name] = process.argv.slice(2);
const sqs = new SQSClient({ endpoint, region, credentials: { accessKeyId: "any", secretAccessKey: "any" } });
const { QueueUrl } = await sqs.send(new CreateQueueCommand({ QueueName: name }));
const handled = new Map();
let finish;
const finished = new Promise((resolve) => { finish = resolve; });
const consumer = Consumer.create({
  queueUrl: QueueUrl,
  sqs,
  batchSize: 5,
  waitTimeSeconds: 20,
  visibilityTimeout: 600,
  terminateVisibilityTimeout: true,
  handleMessage: async (message) => {
    handled.set(message.Body, (handled.get(message.Body) ?? 0) + 1);
    if (message.Body === "3" && handled.get("3") === 1) throw new Error("the first time is hard");
    return message;
  },
});
consumer.on("error", (error) => { throw error; });
let processed = 0;
consumer.on("message_processed", () => { if (++processed === 12) finish(); });
consumer.start();
for (let number = 0; number < 12; number++) {
  await sqs.send(new SendMessageCommand({ QueueUrl, MessageBody: `${number}` }));
}
await finished;
const stopped = new Promise((resolve) => consumer.on("stopped", resolve));
consumer.stop({ abort: true });
await stopped;
const expected = Array.from({ length: 12 }, (_, number) => [`${number}`, number === 3 ? 2 : 1]);
assert.deepEqual([...handled].sort((a, b) => a[0] - b[0]), expected);
const AttributeNames = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"];
const { Attributes } = await sqs.send(new GetQueueAttributesCommand({ QueueUrl, AttributeNames }));
assert.deepEqual(Object.values(Attributes), ["0", "0"]);
sqs.destroy();
