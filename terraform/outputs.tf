# Those of the scenario "happy", for the producer and the consumer by hand; `scenarios` has all.

output "queue_url" {
  description = "URL of the queue of the scenario happy."
  value       = aws_sqs_queue.main["happy"].url
}

output "dlq_arn" {
  description = "ARN of its dead-letter queue."
  value       = aws_sqs_queue.dead_letters["happy"].arn
}

output "message_status_table" {
  description = "Name of its table message_status."
  value       = aws_dynamodb_table.message_status["happy"].name
}

output "message_side_effects_table" {
  description = "Name of its table message_side_effects."
  value       = aws_dynamodb_table.message_side_effects["happy"].name
}

output "aws_region" {
  description = "Region of all resources."
  value       = var.aws_region
}

output "scenarios" {
  description = "Queues and tables by scenario."
  value = {
    for name in local.scenarios : name => {
      queue_url                  = aws_sqs_queue.main[local.first[name]].url
      dlq_url                    = aws_sqs_queue.dead_letters[local.first[name]].url
      dlq_arn                    = aws_sqs_queue.dead_letters[local.first[name]].arn
      message_status_table       = aws_dynamodb_table.message_status[name].name
      message_side_effects_table = aws_dynamodb_table.message_side_effects[name].name
    }
  }
}
