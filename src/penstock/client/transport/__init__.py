"""HTTP/1.1 for the client: one sans-IO core, an asyncio transport and a blocking one."""
