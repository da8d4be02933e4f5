// The head of an HTTP/1.1 message, and a parser that keeps it and hands out the body decoded.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moorage::egress {

struct Field {
  std::string name;
  std::string value;
};
using Fields = std::vector<Field>;

struct RequestHead {
  std::string method;
  std::string target;  // a path with its query, or "*"
  Fields fields;       // without those of the framing and of the connection
};

struct ResponseHead {
  int status = 0;
  std::string reason;
  Fields fields;
};

// How the bytes after the head are framed.
struct Framing {
  bool chunked = false;
  std::string length;  // the value of Content-Length; empty: none
};

bool same_name(std::string_view one, std::string_view other);  // of fields: without case

// A field by which some servers replace the method or the target that was judged; empty: none.
std::string override_in(const Fields& fields);
// Whether the field lets a host compress its answer: a secret could not be recognized in it.
bool allows_compression(const Field& field);
bool is_compressed(const ResponseHead& head);
bool has_body(std::string_view method, int status);  // of an answer: RFC 9110, 6.4.1

// The body of an answer of Moorage's own: in the form of both large families of model APIs, so that
// their clients show the message.
std::string error_body(std::string_view message);

}  // namespace moorage::egress
