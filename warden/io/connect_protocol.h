// The part of the Connect protocol with the JSON codec (connectrpc.com/docs/protocol) that envd
// uses: error codes and their HTTP status, stream envelopes, base64 of proto3 JSON. No compression.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace moorage::warden {

std::string_view connect_code(Code code);  // "not_found"; conflict is "failed_precondition"
int connect_status(Code code);             // HTTP status of a unary answer
std::string start_event(uint32_t pid);
std::string error_json(const Error& error);          // {"code","message"}
std::string end_of_stream_json(const Error& error);  // {"error":{...}}

// The single message of a server-streaming request. Throws invalid_argument.
std::string_view only_envelope(std::string_view body);

std::string encode_base64(std::string_view bytes);
std::string decode_base64(std::string_view text);  // throws invalid_argument

}  // namespace moorage::warden
