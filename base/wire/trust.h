// Where programs inside look for the authorities they trust, unless a variable names others: in
// every sandbox, on this machine or another.
#pragma once

namespace moorage::base {

// A directory of the host, shown read-only in every sandbox, with these files: the certificates of
// the store's own authority and the company's, these and the host's, and the latter for Java.
inline constexpr const char* kCertificatesInside = "/.moorage/certificates";
inline constexpr const char* kOwnCertificates = "own.pem";
inline constexpr const char* kAllCertificates = "all.pem";
inline constexpr const char* kJavaCertificates = "java.jks";

// The bundles of Debian, Fedora and Alpine, and their like.
inline constexpr const char* kBundles[] = {"/etc/ssl/certs/ca-certificates.crt",
                                           "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"};
// Debian's, Fedora's, and that of the images of Eclipse Temurin.
inline constexpr const char* kJavaStores[] = {"/etc/ssl/certs/java/cacerts",
                                              "/etc/pki/java/cacerts",
                                              "/opt/java/openjdk/lib/security/cacerts"};

}  // namespace moorage::base
