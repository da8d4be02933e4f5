#include "egress/dns_message.h"

#include <algorithm>

#include "base/net/host_name.h"

namespace moorage::egress {
namespace {

constexpr size_t kHeader = 12;
constexpr uint8_t kResponse = 0x80;  // in byte 2
constexpr uint8_t kOpcode = 0x78;
constexpr uint8_t kRecursionDesired = 0x01;
constexpr uint8_t kRecursionAvailable = 0x80;  // in byte 3
constexpr uint16_t kTypeOpt = 41;
constexpr uint16_t kClassInternet = 1;
constexpr uint16_t kExtendedError = 15;  // the option's code
constexpr size_t kMaxText = 100;

class Reader {
 public:
  explicit Reader(std::string_view message) : message_(message) {}
  size_t at() const { return at_; }
  bool failed() const { return failed_; }

  uint8_t byte() {
    if (at_ >= message_.size()) {
      failed_ = true;
      return 0;
    }
    return static_cast<uint8_t>(message_[at_++]);
  }
  uint16_t number() {
    const uint16_t high = byte();
    return static_cast<uint16_t>(high << 8 | byte());
  }
  void skip(size_t bytes) {
    failed_ = failed_ || bytes > message_.size() - at_;
    if (!failed_) at_ += bytes;
  }
  // Labels joined by dots. A label with a dot in it is none of a host: it becomes a slash.
  std::string name() {
    std::string text;
    while (!failed_) {
      const uint8_t size = byte();
      if (size == 0) break;
      failed_ = failed_ || size > 63 || size > message_.size() - at_;  // a pointer has 0xc0
      if (failed_) break;
      if (!text.empty()) text += '.';
      for (const char c : message_.substr(at_, size)) text += c == '.' ? '/' : c;
      at_ += size;
    }
    return text;
  }

 private:
  std::string_view message_;
  size_t at_ = 0;
  bool failed_ = false;
};

// Whether an OPT record is among the records that follow the question.
bool has_extension(Reader& reader, unsigned records) {
  for (; records > 0 && !reader.failed(); --records) {
    const std::string owner = reader.name();
    const uint16_t type = reader.number();
    if (type == kTypeOpt && owner.empty() && !reader.failed()) return true;
    reader.skip(6);
    reader.skip(reader.number());
  }
  return false;
}

void put(std::string& bytes, unsigned number) {
  bytes += static_cast<char>(number >> 8);
  bytes += static_cast<char>(number);
}

void put_long(std::string& bytes, uint32_t number) {
  put(bytes, number >> 16);
  put(bytes, number & 0xffff);
}

std::string begin_answer(const DnsQuestion& question, DnsCode code) {
  std::string bytes = question.message;
  const auto flags = static_cast<uint8_t>(bytes[2]);
  bytes[2] = static_cast<char>(kResponse | (flags & (kOpcode | kRecursionDesired)));
  bytes[3] = static_cast<char>(kRecursionAvailable | static_cast<uint8_t>(code));
  const bool repeated = bytes.size() > kHeader;
  bytes.replace(4, 8, std::string("\0\0\0\0\0\0\0\0", 8));
  if (repeated) bytes[5] = 1;
  return bytes;
}

void add_extension(const DnsQuestion& question, DnsReason reason, std::string_view text,
                   std::string& bytes) {
  if (!question.extended) return;
  bytes[11] = 1;
  bytes += '\0';
  put(bytes, kTypeOpt);
  put(bytes, 1232);  // the size that we take over UDP: what fits every path (DNS flag day 2020)
  put_long(bytes, 0);
  if (reason == DnsReason::none) return put(bytes, 0);
  text = text.substr(0, kMaxText);
  put(bytes, static_cast<unsigned>(text.size()) + 6);
  put(bytes, kExtendedError);
  put(bytes, static_cast<unsigned>(text.size()) + 2);
  put(bytes, static_cast<unsigned>(reason));
  bytes += text;
}

}  // namespace

std::optional<DnsQuestion> read_question(std::string_view message) {
  if (message.size() < kHeader || message.size() > kMaxDnsQuestion) return std::nullopt;
  const auto flags = static_cast<uint8_t>(message[2]);
  if ((flags & kResponse) != 0) return std::nullopt;
  DnsQuestion question;
  question.message = message.substr(0, kHeader);
  Reader reader(message);
  reader.skip(4);
  const uint16_t questions = reader.number();
  const unsigned answers = reader.number();
  const unsigned records = answers + reader.number() + reader.number();
  if ((flags & kOpcode) != 0) {
    question.refusal = DnsCode::not_implemented;
    return question;
  }
  const std::string name = reader.name();
  question.type = reader.number();
  question.internet = reader.number() == kClassInternet;
  if (questions != 1 || reader.failed()) {
    question.refusal = DnsCode::format_error;
    return question;
  }
  question.name = base::host_name_on_wire(name).value_or("");
  question.message = message.substr(0, reader.at());
  question.extended = has_extension(reader, records);
  return question;
}

std::string answer_address(const DnsQuestion& question, const base::IpAddress& v4, uint32_t ttl_s) {
  std::string bytes = begin_answer(question, DnsCode::no_error);
  bytes[7] = 1;
  put(bytes, 0xc000 | kHeader);  // the name of the question
  put(bytes, 1);
  put(bytes, kClassInternet);
  put_long(bytes, ttl_s);
  put(bytes, 4);
  bytes.append(reinterpret_cast<const char*>(v4.bytes.data()), 4);
  add_extension(question, DnsReason::none, {}, bytes);
  return bytes;
}

std::string answer_no_data(const DnsQuestion& question) {
  std::string bytes = begin_answer(question, DnsCode::no_error);
  add_extension(question, DnsReason::none, {}, bytes);
  return bytes;
}

std::string answer_refusal(const DnsQuestion& question, DnsCode code, DnsReason reason,
                           std::string_view text) {
  std::string bytes = begin_answer(question, code);
  add_extension(question, reason, text, bytes);
  return bytes;
}

}  // namespace moorage::egress
