// DNS on the wire (RFC 1035, 6891, 8914): the questions that programs in a sandbox ask, and the
// answers to them. Stateless, and the input is hostile: a message is read without following a
// compression pointer, and an answer repeats only the question that was read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/net/ip_address.h"

namespace moorage::egress {

inline constexpr size_t kMaxDnsQuestion = 4096;  // longer ones are not answered

enum class DnsCode : uint8_t {
  no_error = 0,
  format_error = 1,
  server_failure = 2,
  no_such_name = 3,
  not_implemented = 4,
};

// RFC 8914: why, for programs and people that ask ("dig" prints it).
enum class DnsReason : uint16_t { none = 0xffff, other = 0, blocked = 15, network_error = 23 };

struct DnsQuestion {
  std::string name;  // in the spelling of base/net/host_name.h; empty: not a host name
  uint16_t type = 0;
  bool internet = true;                 // class IN
  bool extended = false;                // EDNS: the answer may carry a reason
  DnsCode refusal = DnsCode::no_error;  // anything else: the only answer that is right
  std::string message;                  // the bytes that an answer repeats: header and question
  bool asks_for_address() const { return internet && type == 1; }
};

// Empty: not to be answered at all (not a question, or too short to have an id).
std::optional<DnsQuestion> read_question(std::string_view message);

// The answer, of at most 512 bytes: with the address (lifetime in seconds), or with no data.
std::string answer_address(const DnsQuestion& question, const base::IpAddress& v4, uint32_t ttl_s);
std::string answer_no_data(const DnsQuestion& question);
// With a text for people beside the reason; it is cut at 100 bytes.
std::string answer_refusal(const DnsQuestion& question, DnsCode code, DnsReason reason,
                           std::string_view text);

}  // namespace moorage::egress
