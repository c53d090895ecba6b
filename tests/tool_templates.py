"""How families of templates write calls of functions and what these found, as templates of our own of the same form.

The markers and what is written as JSON are taken from each family's public description; the wording is ours.
"""

from __future__ import annotations

from tests.chat_templates import Family

_QWEN_CALLS = (
    "{%- for call in message.tool_calls -%}{%- if call.function -%}{%- set call = call.function -%}{%- endif -%}"
    "{%- if (loop.first and message.content) or not loop.first -%}{{- '\\n' }}{%- endif -%}"
    "{{- '<tool_call>\\n{\"name\": \"' + call.name + '\", \"arguments\": ' }}ARGUMENTS{{- '}\\n</tool_call>' }}"
    "{%- endfor -%}"
)
_QWEN = (
    "{%- for message in messages -%}{%- if message.role == 'tool' -%}"
    "{%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}{{- '<|im_start|>user' }}{%- endif -%}"
    "{{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}"
    "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}{{- '<|im_end|>\\n' }}{%- endif -%}"
    "{%- else -%}{{- '<|im_start|>' + message.role + '\\n' + message.content }}"
    "{%- if message.tool_calls -%}"
    + _QWEN_CALLS
    + "{%- endif -%}{{- '<|im_end|>\\n' }}{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' }}{%- endif -%}"
)
_IM_ENDS, _IM_CONTROLS = ("<|im_end|>", "<|endoftext|>"), ("<|im_start|>",)

TOOL_FAMILIES: dict[str, Family] = {
    "qwen2.5": Family(_QWEN.replace("ARGUMENTS", "{{- call.arguments | tojson }}"), _IM_ENDS, _IM_CONTROLS),
    # Takes arguments that are text as they are.
    "qwen3": Family(
        _QWEN.replace(
            "ARGUMENTS",
            "{%- if call.arguments is string -%}{{- call.arguments }}"
            "{%- else -%}{{- call.arguments | tojson }}{%- endif -%}",
        ),
        _IM_ENDS,
        _IM_CONTROLS,
    ),
    # One call at a time, its arguments by another name; what was found is JSON again, in a role of its own.
    "llama3.1": Family(
        "{{- bos_token }}{%- for message in messages -%}"
        "{%- if message.role == 'tool' or message.role == 'ipython' -%}"
        "{{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}"
        "{%- if message.content is mapping or message.content is iterable -%}{{- message.content | tojson }}"
        "{%- else -%}{{- message.content }}{%- endif -%}{{- '<|eot_id|>' }}"
        "{%- elif 'tool_calls' in message -%}{%- if message.tool_calls | length != 1 -%}"
        "{{- raise_exception('one call at a time') }}{%- endif -%}{%- set call = message.tool_calls[0].function -%}"
        "{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
        "{{- '{\"name\": \"' + call.name + '\", \"parameters\": ' }}{{- call.arguments | tojson }}{{- '}<|eot_id|>' }}"
        "{%- else -%}{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}"
        "{{- message.content | trim + '<|eot_id|>' }}{%- endif -%}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif -%}",
        ends=("<|eot_id|>", "<|end_of_text|>"),
        controls=("<|start_header_id|>", "<|end_header_id|>", "<|begin_of_text|>"),
        bos="<|begin_of_text|>",
    ),
    # Wants ids of nine letters and digits, writes the whole call as JSON, and a system turn before the last question.
    "mistral": Family(
        "{{- bos_token }}{%- if messages[0].role == 'system' -%}{%- set system = messages[0].content -%}"
        "{%- set rest = messages[1:] -%}{%- else -%}{%- set rest = messages -%}{%- endif -%}"
        "{%- for message in rest -%}{%- if message.role == 'user' -%}"
        "{%- if loop.last and system is defined -%}{{- '[INST] ' + system + '\\n\\n' + message.content + '[/INST]' }}"
        "{%- else -%}{{- '[INST] ' + message.content + '[/INST]' }}{%- endif -%}"
        "{%- elif message.tool_calls is defined -%}{{- '[TOOL_CALLS] [' }}{%- for call in message.tool_calls -%}"
        "{%- if call.id | length != 9 -%}{{- raise_exception('ids have nine characters') }}{%- endif -%}"
        "{%- set written = call.function | tojson -%}{{- written[:-1] + ', \"id\": \"' + call.id + '\"}' }}"
        "{%- if not loop.last -%}{{- ', ' }}{%- else -%}{{- ']' + eos_token }}{%- endif -%}{%- endfor -%}"
        "{%- elif message.role == 'tool' -%}{%- if message.tool_call_id | length != 9 -%}"
        "{{- raise_exception('ids have nine characters') }}{%- endif -%}"
        "{{- '[TOOL_RESULTS] {\"content\": ' + message.content + ', \"call_id\": \"' + message.tool_call_id + '\"}' }}"
        "{{- '[/TOOL_RESULTS]' }}{%- else -%}{{- ' ' + message.content + eos_token }}{%- endif -%}{%- endfor -%}",
        ends=("</s>",),
        controls=("[INST]", "[/INST]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "<s>"),
        bos="<s>",
    ),
}
