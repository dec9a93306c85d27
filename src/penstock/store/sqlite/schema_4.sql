-- Which of the requests with one attempt key holds a leased message: 0 for the one that leased it, the number of a retry, or
-- null if that is not known. Only the holder may give the message back.
ALTER TABLE delivery ADD COLUMN holder INTEGER DEFAULT 0;
