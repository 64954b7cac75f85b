from typing import Optional

from pydantic import BaseModel


class TaskData(BaseModel):
    box: str
    expected_content: Optional[str] = None
