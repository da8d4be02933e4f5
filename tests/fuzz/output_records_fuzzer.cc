// The stream of output records, as read by the CLI: any split of the stream gives the same records.
#include <utility>
#include <vector>

#include "base/wire/output_stream.h"
#include "fuzz.h"

namespace moorage {
namespace {

using Records = std::vector<std::pair<base::RecordKind, std::string>>;

Records parse(std::string_view bytes, size_t cut) {
  Records records;
  base::RecordParser parser([&](base::RecordKind kind, std::string_view payload) {
    records.emplace_back(kind, payload);
  });
  fuzz::refused([&] {
    for (; !bytes.empty(); bytes.remove_prefix(std::min(cut, bytes.size()))) {
      parser.feed(bytes.substr(0, cut));
    }
  });
  return records;
}

}  // namespace
}  // namespace moorage

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moorage;
  fuzz::Script script(data, size);
  const size_t cut = script.byte() + 1;
  const Records whole = parse(script.rest(), script.rest().size() + 1);
  fuzz::require(whole == parse(script.rest(), cut), "records do not depend on how they come");
  std::string again;
  for (const auto& [kind, payload] : whole) again += base::encode_record(kind, payload);
  fuzz::require(script.rest().starts_with(again), "writing the records again gives the same bytes");
  return 0;
}
