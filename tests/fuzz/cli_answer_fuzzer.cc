// Input and output of the CLI: an answer of the daemon that contains an agent's words. None of them
// may control the terminal.
#include "cli/client/json.h"
#include "cli/output/table.h"
#include "cli/output/text.h"
#include "cli/views/exec_result.h"
#include "fuzz.h"

namespace moorage {
namespace {

void show(const cli::Json& answer) {
  for (const char* path : {"", "a", "a.b", "name", "state", "exit_code"}) {
    answer.text(path);
    answer.number(path);
    answer.real(path);
    answer.flag(path);
    answer.texts(path);
    answer.members(path);
    for (const cli::Json& item : answer.items(path)) item.dump();
  }
  fuzz::refused([&] { answer.bytes("name"); });
  fuzz::refused([&] { answer.byte_list("name"); });
  cli::exit_code_of(answer);
  cli::end_notices(answer);
  cli::end_text(answer);
  cli::CapturedOutput output;
  output.add(false, answer.text("name"));
  cli::json_with_output(answer, output);
}

}  // namespace
}  // namespace moorage

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moorage;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  fuzz::refused([&] { show(cli::Json::parse(text)); });
  const std::string shown = cli::printable(text);
  for (const char c : shown)
    fuzz::require(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f, "no control");
  fuzz::require(cli::is_utf8(shown), "the output is UTF-8");
  const size_t width = size % 40 + 1;
  fuzz::require(cli::display_width(cli::shorten(shown, width)) <= width, "shortened text fits");
  cli::printable_lines(text);
  cli::parse_utc(text);
  fuzz::refused([&] { cli::parse_duration_ms(text, "it"); });
  fuzz::refused([&] { cli::parse_size(text, "it"); });
  fuzz::refused([&] { cli::parse_number(text, "it"); });
  fuzz::refused([&] { cli::base64_decode(text); });
  cli::Table table({{"A"}, {"B", true}, {"C", false, true}});
  table.add({std::string(text), "b", std::string(text)});
  table.render({.width = width, .colours = false});
  return 0;
}
