"""Pull-request bot: reads events, tells what failed, answers commands."""
