FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -o /music ./cmd/music

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /src/LICENSE /music /
USER 65532:65532
# In a container the loopback address is nobody else's. Where drivers find it has to be said: MUSIC_ADVERTISE.
ENV MUSIC_LISTEN=0.0.0.0:9042 MUSIC_METRICS_LISTEN=0.0.0.0:9044
EXPOSE 9042 9043 9044
ENTRYPOINT ["/music"]
CMD ["proxy"]
