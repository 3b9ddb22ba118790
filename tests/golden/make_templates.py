"""Golden values for chat_template_test.c: chat templates rendered by transformers' own Jinja set-up.

    python tests/golden/make_templates.py [model.gguf] > tests/golden/templates/cases.jsonl

Made with transformers 5.24.0 and jinja2 3.1.6. The optional GGUF (SmolLM2-135M-Instruct) gives the template named "smollm2".
The other templates are written here, in the manner of those that models carry: they use the same constructs.
Lines: {"template", "source"}, {"list", "messages", "tools"?, "extra"?} and
{"template", "list", "prompt", "expect" | "error", "spans"?}; "spans" are byte ranges of {% generation %} blocks.
A line {"micro": source, "expect" | "error"} is rendered with the variables of VARS.
"""
import datetime
import json
import sys

from transformers.utils.chat_template_utils import _compile_jinja_template, _render_with_assistant_indices

NOW = datetime.datetime(2024, 7, 26, 12, 0, 0)
BOS, EOS = "<s>", "</s>"

TEMPLATES = {
    "chatml": """{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}""",
    "chatml_generation": """{%- for message in messages %}
    {{- '<|im_start|>' ~ message.role ~ '\n' }}
    {%- if message.role == 'assistant' %}
        {%- generation %}
            {{- message.content ~ '<|im_end|>' }}
        {%- endgeneration %}
        {{- '\n' }}
    {%- else %}
        {{- message.content ~ '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}""",
    "llama2": """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate user/assistant') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\n' + system_message + '\n<</SYS>>\n\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}""",
    "llama3": """{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}""",
    "llama3_tools": """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "1 Jan 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{#- Take the system message out #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if tools is not none %}
    {{- "Environment: tools\n" }}
{%- endif %}
{{- "Today: " + date_string + "\n\n" }}
{%- if tools is not none %}
    {{- "Functions you may call:\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("One call a message!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\n\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
""",
    "mistral": """{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' ' + message['content'] + eos_token}}{% elif message['role'] == 'system' and not loop.first %}{{ raise_exception('A system message may only come first') }}{% endif %}{% endfor %}""",
    "mistral_tools": """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("Roles alternate: user, assistant, user, assistant") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- else %}
                    {{- "]" }}
                {%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}
                {{- ", " }}
            {%- else %}
                {{- "]" + eos_token }}
            {%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool" %}
        {{- '[TOOL_RESULTS] {"content": ' + message.content|string + ', "call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception("Only user, assistant and tool roles") }}
    {%- endif %}
{%- endfor %}
""",
    "qwen": """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are an assistant.' }}
    {%- endif %}
    {{- "\\n\\n# Tools\\n\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- message.content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
""",
    "thinking": """{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or reasoning_content) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}""",
    "gemma": """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate') }}{% endif %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}""",
    "gemma3": """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '

' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '

' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '
' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>
' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model
'}}
{%- endif -%}
""",
    "deepseek": """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='') %}{%- for message in messages %}{%- if message['role'] == 'system' %}{% set ns.system_prompt = message['content'] %}{%- endif %}{%- endfor %}{{bos_token}}{{ns.system_prompt}}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<｜User｜>' + message['content']}}{%- endif %}{%- if message['role'] == 'assistant' and message['content'] is not none %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{'<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>'}}{%- endif %}{%- endfor -%}{% if ns.is_tool %}{{'<｜tool▁outputs▁end｜>'}}{% endif %}{% if add_generation_prompt and not ns.is_tool %}{{'<｜Assistant｜>'}}{% endif %}""",
    "phi3": """{% for message in messages %}{% if message['role'] == 'system' %}{{'<|system|>
' + message['content'] + '<|end|>
'}}{% elif message['role'] == 'user' %}{{'<|user|>
' + message['content'] + '<|end|>
'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>
' + message['content'] + '<|end|>
'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>
' }}{% else %}{{ eos_token }}{% endif %}""",
    "phi4mini": """{% for message in messages %}{% if message['role'] == 'system' and 'tools' in message and message['tools'] is not none %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|tool|>' + message['tools'] + '<|/tool|>' + '<|end|>' }}{% else %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}""",
    "zephyr": """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}
""",
    "command": """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% elif false == true %}{% set loop_messages = messages %}{% set system_message = 'You are a large language model.' %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% if system_message != false %}{{ '<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>' + system_message + '<|END_OF_TURN_TOKEN|>' }}{% endif %}{% for message in loop_messages %}{% set content = message['content'] %}{% if message['role'] == 'user' %}{{ '<|START_OF_TURN_TOKEN|><|USER_TOKEN|>' + content.strip() + '<|END_OF_TURN_TOKEN|>' }}{% elif message['role'] == 'assistant' %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>'  + content.strip() + '<|END_OF_TURN_TOKEN|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}""",
    "falcon": """{% for message in messages %}{% if not loop.first %}{{ '\n' }}{% endif %}{% if message['role'] == 'system' %}{{ 'System: ' }}{% elif message['role'] == 'user' %}{{ 'User: ' }}{% elif message['role'] == 'assistant' %}{{ 'Falcon: ' }}{% endif %}{{ message['content'] }}{% endfor %}{% if add_generation_prompt %}{{ '\n' + 'Falcon:' }}{% endif %}""",
    "macros": """{%- macro json_type(spec) -%}
    {%- set names = {"string": "str", "number": "float", "integer": "int", "boolean": "bool"} -%}
    {%- if spec.type == "array" and spec.get("items") -%}
        {{- "list[" + json_type(spec["items"]) + "]" -}}
    {%- elif spec.type == "object" -%}
        {%- if spec.properties is defined -%}
            {%- set fields = [] -%}{{- "{" -}}
            {%- for name, sub in spec.properties.items() -%}{{- name ~ ": " ~ json_type(sub) -}}{%- if not loop.last -%}{{- ", " -}}{%- endif -%}{%- endfor -%}
            {{- "}" -}}
        {%- else -%}dict{%- endif -%}
    {%- else -%}
        {{- names[spec.type] | default("Any") -}}
    {%- endif -%}
{%- endmacro -%}
{%- macro signature(tool, indent="", close=")") %}
{{ indent }}def {{ tool.name }}({% for name, spec in tool.parameters.properties.items() %}{{ name }}: {{ json_type(spec) }}{% if name not in tool.parameters.required %} = None{% endif %}{{ "" if loop.last else ", " }}{% endfor %}{{ close }}:
{{ indent }}    \"\"\"{{ tool.description | capitalize }}\"\"\"
{% endmacro -%}
{% for t in tools or [] %}{{ signature(t.function, indent="  ") }}{% endfor %}
{% for m in messages %}[{{ m.role | upper }}] {{ m.content | default("", true) | string | replace("\n", "\\n") | indent(2) }}
{% else %}empty{% endfor %}
{% if add_generation_prompt %}[ASSISTANT] {% endif %}""",
    "block_set": """{% set header %}
Date {{ strftime_now("%Y-%m-%d") }}
{% endset %}
{% set parts | trim %}   {% for m in messages if m.role != "system" %}{{ loop.index }}/{{ loop.length }}{{ "," if not loop.last }}{% endfor %}   {% endset %}
{{ header }}{{ parts }}
{%+ if true %}kept{% endif %}
   {%+ if true %}  indented{%- endif +%}

   {# a comment #}
tail {% raw %}{{ not run }}{% endraw %}
  {% for m in messages -%}
    {% if loop.index0 == 1 %}{% continue %}{% endif %}
    {%- if loop.index0 > 2 %}{% break %}{% endif -%}
  <{{ m.role }}|{{ m["content"] | string | length }}>
  {% endfor %}
{% filter upper %}done{% endfilter %}

""",
    "extras": """{% set today = strftime_now('%A, %d %B %Y') %}{% for m in messages | rejectattr('role', 'in', ['tool', 'system']) %}{{ loop.cycle('a', 'b') }}{{ loop.revindex }}{{ m.role | title }}: {{ (m.content or '-') | string | trim | replace('  ', ' ') }};{% endfor %}
{{ today }} {{ messages | map(attribute='role') | unique | sort | join('+') }} {{ messages | map(attribute='name', default='anon') | list }} {{ messages | selectattr('tool_calls', 'defined') | list | length }}
{% for k, v in (tools[0].function if tools else {'b': 1, 'A': 2}) | dictsort %}{{ k }}={{ v | tojson if v is mapping else v }};{% endfor %}
{{ extra_flag if extra_flag is defined else 'no flag' }} {{ 'x' if add_generation_prompt }}""",
    "last_user": """{%- set ns = namespace(last=-1, text="") -%}
{%- for m in messages -%}
{%- if m['role'] == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}
{%- set ns.text = ns.text ~ m['role'][0] -%}
{%- endfor -%}
{{ ns.last }}:{{ ns.text }}:{{ messages[ns.last].content[:5] if ns.last >= 0 }}:{{ messages[-1]['content'][-3:] }}
{%- for m in messages[1:] -%}{{ ' ' }}{{ m.role }}{% if loop.previtem is defined %}<{{ loop.previtem.role }}{% endif %}{%- endfor -%}""",
    "printing": """{% for m in messages %}{{ m }}
{% endfor %}{{ tools }} {{ messages | length }} {{ (1, 'a', none, true, 1.5) }} {{ undefined_name }}|{{ messages[0].nothing }}|""",
    "json_all": """{{ messages | tojson }}
{{ messages | tojson(indent=2) }}
{{ tools | tojson(ensure_ascii=true) }}
{{ messages[0] | tojson(separators=(',', ':'), sort_keys=true) }}""",
}

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "the weather in a <city> & 'more'", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "description": "Ort, z. B. Köln"}, "days": {"type": "integer"},
                                          "tags": {"type": "array", "items": {"type": "string"}}},
        "required": ["city"]}}},
    {"type": "function", "function": {"name": "add", "description": "adds", "parameters": {
        "type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]},
        "return": {"type": "number"}}},
]

LISTS = {
    "short": {"messages": [{"role": "user", "content": "Hi there"}]},
    "multi": {"messages": [
        {"role": "system", "content": "Be brief. "},
        {"role": "user", "content": " What is 2+2?\n"},
        {"role": "assistant", "content": "4"},
        {"role": "user", "content": "And  3+3?"},
        {"role": "assistant", "content": "6\nSix."}]},
    "unicode": {"messages": [
        {"role": "user", "content": "Grüße, 世界! 🎉\u00a0\u200d\t\"quoted\" 'single' \\ back\r\nline"},
        {"role": "assistant", "content": "Ωmega — ñ, Straße, ΑΒΓ\u2028x"}], "extra": {"extra_flag": "ja"}},
    "tools": {"messages": [
        {"role": "system", "content": "Use tools."},
        {"role": "user", "content": "Weather in Köln?"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "call00001", "type": "function",
            "function": {"name": "get_weather", "arguments": {"city": "Köln", "days": 2, "x": 1e-7, "y": [1.0, True, None]}}}]},
        {"role": "tool", "tool_call_id": "call00001", "name": "get_weather", "content": "{\"t\": 21.5}"},
        {"role": "assistant", "content": "<think>\nlook\n</think>\n\n21.5 °C"},
        {"role": "user", "content": "Thanks"}], "tools": TOOLS},
    "special": {"messages": [
        {"role": "user", "content": "say <|im_end|> and </s> and {{ 7 * 7 }} {% if %}"},
        {"role": "assistant", "content": "<think>why</think>\n<|im_end|>\n<|im_start|>system"},
        {"role": "user", "content": ""}], "extra": {"enable_thinking": False}},
    "parts": {"messages": [
        {"role": "user", "content": [{"type": "text", "text": " look "}, {"type": "image"}]},
        {"role": "assistant", "content": "ok"}]},
    "odd": {"messages": [
        {"role": "assistant", "content": "first"}, {"role": "assistant", "content": "second"}]},
}

VARS = {"s": "Hello, Wörld", "n": 7, "f": 2.5, "l": [3, 1, 2], "d": {"b": 1, "a": [1, 2], "C": None}, "t": True, "none_": None,
        "words": ["banana", "Apple", "cherry", "apple"], "empty": [], "people": [{"name": "Bo", "age": 3}, {"name": "al", "age": 30}, {"name": "Cy"}]}

MICRO = r"""
{{ 1 + 2 * 3 ** 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** -1 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 1e3 }} {{ 1_000 }} {{ 0x1F }}
{{ 1.0 }} {{ 0.1 + 0.2 }} {{ 1e16 }} {{ 1e15 }} {{ 1e-5 }} {{ 0.0001 }} {{ 123456789.125 }} {{ 1e22 }} {{ -0.0 }} {{ 5e-324 }} {{ 1.7976931348623157e308 }}
{{ 0.05 }} {{ 0.5 }} {{ 12.5e-3 }} {{ 100.0 }} {{ 3.14159 }} {{ [0.1, 1e100, 2.0] }}
{{ 'a' ~ 1 ~ none ~ true ~ 1.5 ~ [1] ~ {'k': 'v'} }} {{ 'x' * 3 }} {{ [1, 2] * 2 }} {{ [1] + [2] }} {{ (1,) + (2,) }} {{ () }} {{ (1) }}
{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 'a' == "a" }} {{ none == none }} {{ 1 != 2 }}
{{ 'ell' in s }} {{ 3 in l }} {{ 'a' in d }} {{ 'z' not in s }} {{ not true }} {{ not 3 in l }} {{ 'b' in 'abc' and 2 in l }} {{ '' in s }}
{{ 1 and 0 }} {{ 0 or 'x' }} {{ none or undefined_thing or 'y' }} {{ [] and 1 }} {{ 'yes' if n > 5 else 'no' }} {{ 'yes' if n > 50 }} {{ 1 if false else 2 if false else 3 }}
{{ s[0] }} {{ s[-1] }} {{ s[1:5] }} {{ s[::-1] }} {{ s[7:] }} {{ s[:-3] }} {{ l[1:] }} {{ l[::-1] }} {{ l[5:] }} {{ l[-2:] }} {{ s[::2] }} {{ l[2:0:-1] }} {{ s[8] }} {{ s[100] }}|
{{ s | length }} {{ s | upper }} {{ s | lower }} {{ 'hELLO wORLD' | capitalize }} {{ "hello world-and (more)" | title }} {{ 'straße' | upper }} {{ l | length }} {{ d | count }}
{{ '  x  ' | trim }}| {{ 'xxaxx' | trim('x') }} {{ '\n\t x \u00a0' | trim }}| {{ s.strip('Hd') }} {{ s.lstrip('He') }} {{ s.rstrip('dl') }}
{{ 'a,b,,c'.split(',') }} {{ ' a  b c '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a b  c '.split(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a-b-c'.rsplit('-', 1) }} {{ ' a b  c '.rsplit(none, 1) }}
{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x', 'c')) }} {{ 'abc'.replace('b', 'XX') }} {{ 'aaa'.replace('a', 'b', 2) }} {{ 'abc'.replace('', '-') }} {{ '-'.join(['a', 'b']) }} {{ 'abc'.find('c') }} {{ 'Wörld'.find('l') }} {{ 'abcabc'.rfind('b') }} {{ 'abab'.count('ab') }}
{{ 'a\nb\r\nc'.splitlines() }} {{ 'x'.isdigit() }} {{ '12'.isdigit() }} {{ 'ab'.isalpha() }} {{ 'hello there'.title() }} {{ "it's".title() }} {{ 'ABC'.lower() }} {{ 'ünï'.upper() }} {{ 'x{}y{}'.format(1, 'a') }} {{ '{1}{0}{k}'.format('a', 'b', k='c') }}
{{ d.items() | list }} {{ d.keys() | list }} {{ d.values() | list }} {{ d.get('a') }} {{ d.get('z') }} {{ d.get('z', 5) }} {{ d['b'] }} {{ d.b }} {{ d.nothing }}| {{ d['nothing'] }}|
{% for k, v in d.items() %}{{ k }}:{{ v }};{% endfor %} {% for k in d %}{{ k }}{% endfor %} {% for k, v in d | dictsort %}{{ k }}{{ v }}{% endfor %} {{ d | dictsort(true) }} {{ {'x': 2, 'y': 1} | dictsort(by='value', reverse=true) }}
{{ d | items | list }} {{ undefined_thing | items | list }} {{ 'a' | list }} {{ d | list }}
{{ 'it\'s' }} {{ "say \"x\"" }} {{ ['it\'s', "say \"x\"", 'both \' and "'] }} {{ ['\n\t\\', '\x00\x1f\x7f', 'é', '\u200b', '\u2028', '🎉', '\ud7ff'] }} {{ 'a' 'b' }} {{ '\q' }} {{ '\101' }}
{{ none }} {{ true }} {{ False }} {{ None }} {{ [none, true] }} {{ {'a': none, 1: 2} }} {{ {} }} {{ [] }} {{ ((1, 2), [3]) }}
{{ d | tojson }} {{ 'a"b\\c\n\t\r\b\f\x01\x7f</é>&\'' | tojson }} {{ [1, 2.0, true, none, 'x', {}, []] | tojson }} {{ 1e20 | tojson }} {{ {1: 2, true: 3, none: 4, 1.5: 5} | tojson }}
{{ d | tojson(indent=2) }} {{ [] | tojson(indent=2) }} {{ {'a': {}} | tojson(indent=0) }} {{ [1, [2]] | tojson(indent='\t') }} {{ 'é🎉' | tojson(ensure_ascii=true) }} {{ d | tojson(sort_keys=true) }} {{ d | tojson(separators=(',', ':')) }}
{{ (1, 2) | tojson }} {{ l | tojson(none) }} {{ 'x' | tojson(true) }}
{{ undefined_thing }}| {{ undefined_thing is defined }} {{ undefined_thing | default('d') }} {{ '' | default('d') }} {{ '' | default('d', true) }} {{ none | default('d') }} {{ undefined_thing | length }} {{ undefined_thing == none }} {{ undefined_thing is none }} {{ 'a' ~ undefined_thing }} {{ undefined_thing | list }} {{ not undefined_thing }} {{ 'a' in undefined_thing }}
{{ 1 is number }} {{ true is number }} {{ true is integer }} {{ 1 is integer }} {{ 1.0 is float }} {{ 'a' is string }} {{ d is mapping }} {{ l is sequence }} {{ d is sequence }} {{ 's' is sequence }} {{ 1 is iterable }} {{ 's' is iterable }} {{ none is none }} {{ true is boolean }} {{ true is true }} {{ 1 is true }} {{ false is false }} {{ undefined_thing is iterable }} {{ undefined_thing is sequence }} {{ undefined_thing is undefined }}
{{ 3 is odd }} {{ 4 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 1 is eq 1 }} {{ 1 is equalto(2) }} {{ 1 is ne 2 }} {{ 3 is gt 2 }} {{ 3 is lt 2 }} {{ 2 is in l }} {{ 'a' is in 'abc' }} {{ none is sameas none }} {{ 'abc' is lower }} {{ 'ABC' is upper }} {{ range is callable }} {{ 'trim' is filter }} {{ 'odd' is test }} {{ 5 is not none }} {{ 1 is not defined }} {{ not x is defined }}
{{ l | sort }} {{ words | sort }} {{ words | sort(case_sensitive=true) }} {{ l | sort(reverse=true) }} {{ words | unique | list }} {{ l | sum }} {{ l | max }} {{ l | min }} {{ l | first }} {{ l | last }} {{ l | reverse | list }} {{ s | reverse }} {{ empty | first }}| {{ words | min }} {{ words | max }}
{{ people | map(attribute='name') | join(', ') }} {{ people | map(attribute='age', default=0) | list }} {{ words | map('upper') | list }} {{ words | map('replace', 'a', 'o') | join('/') }} {{ people | join('-', attribute='name') }} {{ people | sort(attribute='name') | map(attribute='name') | list }} {{ people | sum(attribute='zero', start=1) if false }}
{{ people | selectattr('age') | map(attribute='name') | list }} {{ people | rejectattr('age') | map(attribute='name') | list }} {{ people | selectattr('age', 'defined') | list | length }} {{ people | selectattr('name', 'equalto', 'Bo') | first }} {{ [0, 1, '', 'a'] | select | list }} {{ l | select('odd') | list }} {{ l | reject('gt', 1) | list }} {{ [1, 2, 3, 4, 5] | batch(2) | list }} {{ [1, 2, 3] | batch(2, 'x') | list }}
{{ 'a\nb\n\nc' | indent }} {{ 'a\nb' | indent(2, true) }} {{ 'a\n\nb' | indent(width='> ', blank=true) }} {{ 'x\n' | indent }}|
{{ '42' | int }} {{ '4.7' | int }} {{ 'x' | int }} {{ 'x' | int(5) }} {{ 3.9 | int }} {{ '3.5' | float }} {{ -3 | abs }} {{ 2.567 | round(1) }} {{ 2.5 | round }} {{ 2.1 | round(0, 'ceil') }} {{ '0x1F' | int(0, 16) }} {{ ' 7 ' | int }} {{ true | int }}
{{ 'a <b>' | e }} {{ 'a <b>' | safe }} {{ 'one two  three' | wordcount }} {{ '%s-%d-%r' | format('a', 3, 'b') }} {{ '%s is %s' % ('x', 1) }} {{ '%.2f%%' % 3.14159 }} {{ 5 | string ~ 'x' }}
{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }} {% if true %}{% set y = 5 %}{% endif %}{{ y }} {% set a, b = 1, 2 %}{{ a }}{{ b }} {% set ns = namespace(v=1) %}{% for i in l %}{% set ns.v = ns.v + i %}{% endfor %}{{ ns.v }}
{% for i in range(3) %}{{ i }}{% endfor %} {{ range(2, 10, 3) | list }} {{ range(5, 0, -2) | list }} {{ range(0) | list }} {% for i in range(5) if i % 2 %}{{ i }}{{ loop.index }}{{ loop.last }}{% endfor %} {% for x in [] %}x{% else %}none{% endfor %} {% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for i in 'abc' %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.cycle('x', 'y') }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.changed(i == 'a') }} {% endfor %} {% for i in [1, 2] %}{% for j in [1, 2] %}{{ loop.depth }}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}
{% macro f(a, b=2, c=a) %}[{{ a }},{{ b }},{{ c }}]{% endmacro %}{{ f(1) }}{{ f(1, 3) }}{{ f(b=5, a=4) }}{{ f() }} {% macro g() %}{{ late }}{% endmacro %}{% set late = 'L' %}{{ g() }} {% macro h(n) %}{{ n }}{% if n > 0 %}{{ h(n - 1) }}{% endif %}{% endmacro %}{{ h(3) }} {{ f(1) | upper | length }}
{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }} {% set q %}x{{ n }}y{% endset %}{{ q | upper }} {% set q | replace('x', 'z') %}x{% endset %}{{ q }} {% filter trim | upper %}  ab {% endfilter %} {% set zz %}{% set inner = 1 %}{{ inner }}{% endset %}{{ zz }}{{ inner }}
{{ dict(a=1, b='x') }} {{ dict({'a': 1}, c=2) }} {{ dict([('k', 1)]) }} {{ {'a': 1}['a'] }} {{ {'items': 3}.items is callable }} {{ {'items': 3}['items'] }} {{ 'abc'['upper']() }} {{ (1, 2, 3)[1] }} {{ [[1, 2], [3]][0][1] }} {{ people[0].name }} {{ people.0.name }} {{ none.x }}|
{% for i in l %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %} {% for i in l %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% endfor %} {% for i in l %}{% for j in l %}{% if j == 1 %}{% break %}{% endif %}{{ j }}{% endfor %}|{% endfor %}
{{ s.nothing is defined }} {{ 's' in d }} {{ (d.b | string) + 'x' }} {{ -n }} {{ +n }} {{ -n | abs }} {{ - 2 ** 2 }} {{ true + 1 }} {{ 3 - -2 }} {{ l.index(2) }} {{ l.count(3) }} {{ {'a': {'b': [10, 20]}}.a.b[1] }} {{ 'a' if x is defined else 'b' }} {{ 'A' ~ 'b' | upper }} {{ 1 ~ 2 + 3 if false else 'ok' }}
{{ raise_exception('custom ' ~ n) }}
{{ undefined_thing.attribute }}
{{ undefined_thing() }}
{{ 1 + 'a' }}
{{ 'a' + none }}
{{ undefined_thing + 1 }}
{{ none | length }}
{{ l.append(1) }}
{{ 1 / 0 }}
{{ d | tojson(bad=1) }}
{{ undefined_thing | tojson }}
{{ 'a' < 1 }}
{{ 1 in 'a' }}
{% for x in 5 %}{% endfor %}
{% for a, b in [[1, 2, 3]] %}{% endfor %}
{% set d.x = 1 %}
{{ none() }}
{{ range(1000000) }}
{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}
{{ 'a'.split('') }}
{% if %}{% endif %}
{% for x in l %}
{{ l | }}
{{ s | nofilter }}
{{ s is notest }}
{{ (1 }}
{{ 'abc }}
{% endif %}
{% unknown %}
{{ 1 2 }}
{{ {'a': } }}
{% set = 3 %}
{# open
{% raw %} open
{{ a b }}
{{ [1, 2 }}
{% break %}
{% else %}
""".strip("\n").split("\n")

MULTILINE = [
    "a\n  {% if true %}\n  b\n  {% endif %}\nc\n",
    "  {{ 1 }}\n  {{ 2 }}\n",
    "x {%- if true %} y {% endif -%} z",
    "x\n\n{%- if true -%}\n\ny\n\n{%- endif -%}\n\nz\n\n",
    "{% if true %}\r\nwin\r\n{% endif %}\rmac\r",
    "  {# c #}\n  a {# c #}\nb\n{#- c -#}\n d",
    "\t{% set x = 1 %}\n\t{{ x }}\n\n",
    "{{ 1 -}}   \n  {{- 2 }}  {{ 3 }}",
    "  {%+ if true %}\n a\n  {%+ endif %}\nb",
    "{% if true +%}\n a\n{% endif +%}\nb",
    "a\n{% for i in [1, 2] %}\n    {{ i }}\n{% endfor %}\nb",
    "{% raw %}\n {{ x }} {% if %}\n{% endraw %}\nend",
    "a {%- raw -%}  {{ y }}  {%- endraw -%}  b",
    "{{ '{{' }}{{ '%}' }}{{ {'a': {'b': 1}}['a']['b'] }}{{ {} }}",
    "{{ 'multi\nline' }}\n{{ \"tab\\tx\" }}",
    "{ % { # } } %} #} }}",
    "\n\n{% if true %}x{% endif %}\n\n\n",
    "{#comment#}{%if true%}{{1}}{%endif%}",
    "  {%- set a = 1 -%}  \n {{ a }}\u00a0 {%- if 1 %}z{% endif %}",
    "{% set x = 'a' -%}\n   {% if true %}\n  ind\n   {% endif %}",
    "", "\n", "plain",
]


def outcome(compiled, variables):
    try:
        return {"expect": compiled.render(**variables)}
    except Exception as e:  # the test checks that snug fails too, not the words
        return {"error": f"{type(e).__name__}: {e}"[:120]}


def build(source):
    compiled = _compile_jinja_template(source)
    compiled.environment.globals["strftime_now"] = lambda f: NOW.strftime(f)
    compiled.globals["strftime_now"] = lambda f: NOW.strftime(f)
    return compiled


def spans(compiled, variables):
    text, indices = _render_with_assistant_indices(compiled, variables.pop("messages"), variables.pop("tools"), None,
                                                   variables.pop("add_generation_prompt"), **variables)
    return [[len(text[:a].encode()), len(text[:b].encode())] for a, b in indices]


def main():
    def emit(record):
        print(json.dumps(record, ensure_ascii=False, separators=(",", ":")))

    if len(sys.argv) > 1:
        import gguf
        TEMPLATES["smollm2"] = gguf.GGUFReader(sys.argv[1]).fields["tokenizer.chat_template"].contents()
    emit({"vars": VARS})
    for name, source in TEMPLATES.items():
        emit({"template": name, "source": source})
    for name, value in LISTS.items():
        emit({"list": name, **value})
    for name, source in TEMPLATES.items():
        compiled = build(source)
        for list_name, value in LISTS.items():
            for prompt in (False, True):
                variables = {"messages": value["messages"], "tools": value.get("tools"), "documents": None, "add_generation_prompt": prompt,
                             "bos_token": BOS, "eos_token": EOS, **value.get("extra", {})}
                record = {"template": name, "list": list_name, "prompt": prompt, **outcome(compiled, variables)}
                if "{%- generation" in source and "expect" in record:
                    variables.pop("documents")
                    record["spans"] = spans(compiled, variables)
                if not prompt or list_name in ("short", "tools", "special"):
                    emit(record)
    for source in MICRO + MULTILINE:
        try:
            emit({"micro": source, **outcome(build(source), VARS)})
        except Exception as e:
            emit({"micro": source, "error": f"{type(e).__name__}: {e}"[:120]})


if __name__ == "__main__":
    main()
