"""What uploaded files hold, found out in processes that have little to lose."""
