variable "aws_region" {
  description = "AWS region for all resources."
  type        = string
  default     = "us-west-1"

  validation {
    condition     = can(regex("^[a-z]{2}(-[a-z]+)+-[0-9]$", var.aws_region))
    error_message = "aws_region is the name of a region, such as us-west-1."
  }
}

variable "project_name" {
  description = "Base name of all resources."
  type        = string
  default     = "sqs-demo"

  validation {
    condition     = can(regex("^[A-Za-z0-9_-]{1,40}$", var.project_name))
    error_message = "project_name has 1 to 40 letters, digits, hyphens and underscores."
  }
}

variable "queue_visibility_timeout" {
  description = "Visibility timeout of every queue, in seconds."
  type        = number
  default     = 10

  validation {
    condition     = var.queue_visibility_timeout >= 0 && var.queue_visibility_timeout <= 43200
    error_message = "queue_visibility_timeout is from 0 to 43200 seconds."
  }
}

variable "queue_receive_wait" {
  description = "How long a receive waits for messages, in seconds."
  type        = number
  default     = 10

  validation {
    condition     = var.queue_receive_wait >= 0 && var.queue_receive_wait <= 20
    error_message = "queue_receive_wait is from 0 to 20 seconds."
  }
}
