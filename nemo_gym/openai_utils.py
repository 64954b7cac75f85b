"""Public import path of `nemo_gym.schemas` and the endpoint client; re-exports only."""

from nemo_gym.http.endpoint import RATE_LIMIT_ERROR_CODES, RETRY_ERROR_CODES, NeMoGymAsyncOpenAI
from nemo_gym.http.retries import MAX_NUM_TRIES
from nemo_gym.published.hooks import PublishedHooks  # noqa: F401 - its hooks are used from now on
from nemo_gym.schemas import tokens
from nemo_gym.schemas.chat import (
    AssistantMessageForTrainingParam as NeMoGymChatCompletionAssistantMessageForTrainingParam,
)
from nemo_gym.schemas.chat import AssistantMessageParam as NeMoGymChatCompletionAssistantMessageParam
from nemo_gym.schemas.chat import ChatCompletion as NeMoGymChatCompletion
from nemo_gym.schemas.chat import ChatCompletionCreateParams as NeMoGymChatCompletionCreateParamsNonStreaming
from nemo_gym.schemas.chat import ChatMessage as NeMoGymChatCompletionMessage
from nemo_gym.schemas.chat import ChatMessageForTraining as NeMoGymChatCompletionMessageForTraining
from nemo_gym.schemas.chat import Choice as NeMoGymChoice
from nemo_gym.schemas.chat import ContentPartText as NeMoGymChatCompletionContentPartTextParam
from nemo_gym.schemas.chat import DeveloperMessageParam as NeMoGymChatCompletionDeveloperMessageParam
from nemo_gym.schemas.chat import Function as NeMoGymFunction
from nemo_gym.schemas.chat import FunctionCallParam as NeMoGymChatCompletionMessageToolCallFunctionParam
from nemo_gym.schemas.chat import FunctionDefinition as NeMoGymFunctionDefinition
from nemo_gym.schemas.chat import FunctionToolParam as NeMoGymChatCompletionToolParam
from nemo_gym.schemas.chat import FunctionToolParam as NeMoGymFunctionToolParam
from nemo_gym.schemas.chat import MessageParam as NeMoGymChatCompletionMessageParam
from nemo_gym.schemas.chat import MessageToolCall as NeMoGymChatCompletionMessageToolCall
from nemo_gym.schemas.chat import SystemMessageParam as NeMoGymChatCompletionSystemMessageParam
from nemo_gym.schemas.chat import ToolCallParam as NeMoGymChatCompletionMessageToolCallParam
from nemo_gym.schemas.chat import ToolMessageParam as NeMoGymChatCompletionToolMessageParam
from nemo_gym.schemas.chat import UserMessageParam as NeMoGymChatCompletionUserMessageParam
from nemo_gym.schemas.items import RESPONSES_TO_TRAIN, training_variant_of
from nemo_gym.schemas.items import EasyInputMessage as NeMoGymEasyInputMessage
from nemo_gym.schemas.items import EasyInputMessageForTraining as NeMoGymEasyInputMessageForTraining
from nemo_gym.schemas.items import FunctionCallOutput as NeMoGymFunctionCallOutput
from nemo_gym.schemas.items import FunctionToolCall as NeMoGymResponseFunctionToolCall
from nemo_gym.schemas.items import FunctionToolCallForTraining as NeMoGymResponseFunctionToolCallForTraining
from nemo_gym.schemas.items import InputImage as NeMoGymResponseInputImage
from nemo_gym.schemas.items import InputItem as NeMoGymResponseInputItem
from nemo_gym.schemas.items import InputText as NeMoGymResponseInputText
from nemo_gym.schemas.items import McpCall as NeMoGymResponseMcpCall
from nemo_gym.schemas.items import Message as NeMoGymMessage
from nemo_gym.schemas.items import MessageForTraining as NeMoGymMessageForTraining
from nemo_gym.schemas.items import OutputItem as NeMoGymResponseOutputItem
from nemo_gym.schemas.items import OutputMessage as NeMoGymResponseOutputMessage
from nemo_gym.schemas.items import OutputMessageForTraining as NeMoGymResponseOutputMessageForTraining
from nemo_gym.schemas.items import OutputRefusal as NeMoGymResponseOutputRefusal
from nemo_gym.schemas.items import OutputText as NeMoGymResponseOutputText
from nemo_gym.schemas.items import ReasoningItem as NeMoGymResponseReasoningItem
from nemo_gym.schemas.items import ReasoningItemForTraining as NeMoGymResponseReasoningItemForTraining
from nemo_gym.schemas.items import Summary as NeMoGymSummary
from nemo_gym.schemas.responses import InputTokensDetails as NeMoGymResponseInputTokensDetails
from nemo_gym.schemas.responses import OutputTokensDetails as NeMoGymResponseOutputTokensDetails
from nemo_gym.schemas.responses import Response as NeMoGymResponse
from nemo_gym.schemas.responses import ResponseCreateParams as NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.schemas.responses import ResponseUsage as NeMoGymResponseUsage
from nemo_gym.schemas.responses import accumulate_response_usage
from nemo_gym.schemas.tokens import TokenIDLogProbMixin

NeMoGymResponseFunctionCallOutput = NeMoGymFunctionCallOutput
NeMoGymResponseInput = list[NeMoGymResponseInputItem]
# These public constants are sets. nemo_gym itself uses the tuples in `tokens`, because it also needs the order.
REQUIRED_TOKEN_METADATA_FIELDS = frozenset(tokens.REQUIRED_TOKEN_METADATA_FIELDS)
TOKEN_METADATA_FIELDS = frozenset(tokens.TOKEN_METADATA_FIELDS) - {"sampling_spans"}

__all__ = [
    "MAX_NUM_TRIES", "RATE_LIMIT_ERROR_CODES", "REQUIRED_TOKEN_METADATA_FIELDS", "RESPONSES_TO_TRAIN",
    "RETRY_ERROR_CODES", "TOKEN_METADATA_FIELDS", "NeMoGymAsyncOpenAI", "NeMoGymChatCompletion",
    "NeMoGymChatCompletionAssistantMessageForTrainingParam", "NeMoGymChatCompletionAssistantMessageParam",
    "NeMoGymChatCompletionContentPartTextParam", "NeMoGymChatCompletionCreateParamsNonStreaming",
    "NeMoGymChatCompletionDeveloperMessageParam", "NeMoGymChatCompletionMessage",
    "NeMoGymChatCompletionMessageForTraining", "NeMoGymChatCompletionMessageParam",
    "NeMoGymChatCompletionMessageToolCall", "NeMoGymChatCompletionMessageToolCallFunctionParam",
    "NeMoGymChatCompletionMessageToolCallParam", "NeMoGymChatCompletionSystemMessageParam",
    "NeMoGymChatCompletionToolMessageParam", "NeMoGymChatCompletionToolParam", "NeMoGymChatCompletionUserMessageParam",
    "NeMoGymChoice", "NeMoGymEasyInputMessage", "NeMoGymEasyInputMessageForTraining", "NeMoGymFunction",
    "NeMoGymFunctionCallOutput", "NeMoGymFunctionDefinition", "NeMoGymFunctionToolParam", "NeMoGymMessage",
    "NeMoGymMessageForTraining", "NeMoGymResponse", "NeMoGymResponseCreateParamsNonStreaming",
    "NeMoGymResponseFunctionCallOutput", "NeMoGymResponseFunctionToolCall",
    "NeMoGymResponseFunctionToolCallForTraining", "NeMoGymResponseInput", "NeMoGymResponseInputImage",
    "NeMoGymResponseInputItem", "NeMoGymResponseInputText", "NeMoGymResponseInputTokensDetails",
    "NeMoGymResponseMcpCall", "NeMoGymResponseOutputItem", "NeMoGymResponseOutputMessage",
    "NeMoGymResponseOutputMessageForTraining", "NeMoGymResponseOutputRefusal", "NeMoGymResponseOutputText",
    "NeMoGymResponseOutputTokensDetails", "NeMoGymResponseReasoningItem", "NeMoGymResponseReasoningItemForTraining",
    "NeMoGymResponseUsage", "NeMoGymSummary", "TokenIDLogProbMixin", "accumulate_response_usage",
    "training_variant_of",
]  # fmt: skip
