// Copies its input to its output. With --text as the last argument both are text streams, as of
// moorage-outpost. With `exit N` it ends so at once.
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/wire/text_stream.h"

namespace {

using moorage::base::TextDecoder;
using moorage::base::TextDirection;
using moorage::base::TextEncoder;

void write_all(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t size = write(1, bytes.data(), bytes.size());
    if (size <= 0) _exit(3);
    bytes.remove_prefix(static_cast<size_t>(size));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() >= 2 && words[0] == "exit") return std::atoi(words[1].c_str());
  const bool text = !words.empty() && words.back() == "--text";
  TextDecoder decoder(TextDirection::to_program);
  TextEncoder encoder(TextDirection::from_program);
  std::string piece(64 << 10, '\0');
  std::string bytes;
  for (ssize_t size = 0; !decoder.ended() && (size = read(0, piece.data(), piece.size())) > 0;) {
    const std::string_view arrived(piece.data(), static_cast<size_t>(size));
    bytes.clear();
    if (text) decoder.decode(arrived, bytes);
    write_all(text ? encoder.encode(bytes) : std::string(arrived));
  }
  if (text) write_all(encoder.end());
  return 0;
}
