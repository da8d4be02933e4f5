// JSON bodies of requests, through the readers used by every handler, and request targets.
#include "daemon/http/http_text.h"
#include "daemon/http/keyed_answers.h"
#include "daemon/json/json_fields.h"
#include "fuzz.h"

namespace moorage {
namespace {

void read_all(daemon::JsonFields fields, int depth) {
  const std::string names[] = {"a", "b", "name", "argv", "env", "limits"};
  for (const std::string& name : names) {
    fuzz::refused([&] { fields.text(name); });
    fuzz::refused([&] { fields.required_bytes(name); });
    fuzz::refused([&] { fields.byte_list(name); });
    fuzz::refused([&] { fields.whole(name, -5, 1 << 20); });
    fuzz::refused([&] { fields.number(name); });
    fuzz::refused([&] { fields.flag(name); });
    fuzz::refused([&] { fields.text_map(name); });
    fuzz::refused([&] {
      if (auto inner = fields.object(name); inner && depth < 3)
        read_all(std::move(*inner), depth + 1);
    });
  }
  fuzz::refused([&] { fields.finish(); });
}

}  // namespace
}  // namespace moorage

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moorage;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  fuzz::refused([&] { read_all(daemon::JsonFields::parse(text), 0); });
  fuzz::refused([&] { daemon::parse_target(text).segments(); });
  fuzz::refused([&] { daemon::check_idempotency_key(text); });
  if (const auto bytes = daemon::base64_decode(text)) {
    fuzz::require(daemon::base64_encode(*bytes) == text, "base64 has one spelling");
  }
  return 0;
}
